"""The learner: TrainingSamples in, optimizer steps and checkpoints out. It knows no algorithm."""
