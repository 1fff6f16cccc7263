"""Real processes of a training: started together, listened to, and killed together."""
