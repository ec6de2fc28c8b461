"""What a defect is, the rules that find defects, and the rooms they live in."""
