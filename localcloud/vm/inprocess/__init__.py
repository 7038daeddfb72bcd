"""The tier for machines without OpenSSH: an SSH server in this process."""
