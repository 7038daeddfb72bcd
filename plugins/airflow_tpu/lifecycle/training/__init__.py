"""The user's process on the TPU: launched, followed, resumed, collected."""
