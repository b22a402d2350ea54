"""Where every tensor lives: views, results over operands, safe distances, the workspace."""
