"""The usage as people and programs read it: text, JSON, months, charts, tables."""
