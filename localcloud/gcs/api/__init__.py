"""The methods of the JSON and XML interfaces."""
