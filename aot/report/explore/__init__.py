"""What flash, RAM and time a model may be traded for: builds with many options, and the best of them."""
