"""What the tensors hold: every byte read once, told in a few numbers a tensor."""
