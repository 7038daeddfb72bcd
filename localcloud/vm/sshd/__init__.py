"""OpenSSH's server below a supervisor: the two tiers that are real."""
