"""sources: tools from elsewhere, one module or folder a kind; none knows another."""
