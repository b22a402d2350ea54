"""From fused relay functions to candidates: PrimFuncs with packed constants."""
