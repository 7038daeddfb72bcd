"""From the pasted grant letter to a grant file."""
