"""What a sequence leaves behind between steps: keys, values and short-convolution inputs."""
