"""What Cloud TPU offers: types, zones, prices, runtime versions and transfer rates."""
