"""Files that strangers could send: each breaks one rule of the format."""
