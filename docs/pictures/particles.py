"""Make the picture of the guide `particles`: python docs/pictures/particles.py."""

from page_picture import keep_picture

if __name__ == "__main__":
    keep_picture("guides/particles.md", "particles.png")
