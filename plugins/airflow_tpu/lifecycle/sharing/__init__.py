"""What several Airflows of one project share: whose is what."""
