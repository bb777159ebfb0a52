"""Make the picture of the first game: python docs/pictures/first_game.py."""

from page_picture import keep_picture

if __name__ == "__main__":
    keep_picture("start/first-game.md", "first-game.png", width=640, colors=240)
