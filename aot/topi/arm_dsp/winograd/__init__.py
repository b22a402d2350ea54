"""3 x 3 convolution by Winograd's minimal filtering."""
