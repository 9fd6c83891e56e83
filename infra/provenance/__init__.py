"""What exactly is measured: packages, files, container, GPUs, clocks."""
