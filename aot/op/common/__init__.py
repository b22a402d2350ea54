"""What several operator files share: windows, axes, checks, quantisation."""
