"""The templates of aot/template as Python; written by scripts/c_templates.py."""
