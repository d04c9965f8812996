"""discovery: how a caller finds the right tool among thousands: exposure, meta tools, search, and checks."""
