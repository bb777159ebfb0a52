"""Make the picture of the guide `sprites-and-cameras`: python docs/pictures/sprites.py."""

from page_picture import keep_picture

if __name__ == "__main__":
    keep_picture("guides/sprites-and-cameras.md", "sprites.png")
