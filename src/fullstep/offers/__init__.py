"""Who rents which machine at what price, seen when; and the machines that one has or could buy."""
