"""What the grant allows, and whether it covers one create."""
