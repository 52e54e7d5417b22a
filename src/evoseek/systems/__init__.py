"""Systems: one file each, which reads like the paper's algorithm box."""
