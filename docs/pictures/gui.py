"""Make the picture of the guide `text-and-gui`: python docs/pictures/gui.py."""

from page_picture import keep_picture

if __name__ == "__main__":
    keep_picture("guides/text-and-gui.md", "gui.png")
