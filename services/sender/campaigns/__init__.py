"""What a campaign is allowed to do, what it sends, and how far it is."""
