"""Can this be trusted?"""
