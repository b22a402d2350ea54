"""One pool as large as needed is no other memory than the workspace without pools."""
