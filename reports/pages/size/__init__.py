"""The first page: should I use it at my size?"""
