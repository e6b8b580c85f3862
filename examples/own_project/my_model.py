from torch import nn


class MyModel(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, hidden), nn.ReLU(), nn.Linear(hidden, 2))

    def forward(self, x):  # gets the batch field of that name
        return self.layers(x)  # goes to the loss
