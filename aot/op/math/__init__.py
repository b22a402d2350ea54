"""Functions of single elements, and what is made of them."""
