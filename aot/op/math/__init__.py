"""Functions of single elements, and operators built from them."""
