"""Where things stand in the text of a launch, and the edits that change them."""
