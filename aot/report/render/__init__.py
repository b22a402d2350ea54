"""Reports as HTML, Markdown, drawings and the formats of other programs."""
