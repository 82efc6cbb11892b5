"""What a launch needs on the machines before it starts: images, weights, tokenizers."""
