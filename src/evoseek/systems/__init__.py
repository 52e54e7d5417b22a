"""Systems: one file each, reading like the paper's algorithm box, and the loop that all of them share."""
