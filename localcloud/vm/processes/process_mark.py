"""How processes of one local cloud are told from all others."""

#: Every process of a cloud inherits this variable; its value is the absolute state directory.
PROCESS_MARK = "LOCALCLOUD_STATE_DIR"
