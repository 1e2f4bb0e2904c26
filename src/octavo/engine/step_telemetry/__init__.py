"""What each step was made of and how long it took: counted always, told to others if they ask for it."""
