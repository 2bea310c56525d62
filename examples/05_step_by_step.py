"""A federation in memory: train round by round, stop early, look inside, predict."""

import numpy as np

import fedsir

data = fedsir.FederatedData.load("digits", alpha=2, noise_rate=0.8, seed=0)
print(f"{data.n_clients} clients, really noisy: {', '.join(data.truth.noisy_clients)}")


def log(step: fedsir.Step) -> None:
    print(f"round {step.round:2}  accuracy {step.accuracy:.1%}  wrong labels {step.metrics['noise_after']:.1%}")


simulation = fedsir.simulate(data, method="fedsir", rounds=20, seed=0, callbacks=[log])
for step in simulation:
    if step.round == 0 and step.split is not None:
        print(f"Stage I calls noisy: {', '.join(step.split.noisy)}")
    if step.accuracy is not None and step.accuracy > 0.96:  # to show how; a study would not stop by test accuracy
        break

changed = sum(int((now != data.given_labels[data.rows(k)]).sum()) for k, now in simulation.corrected_labels().items())
print(f"stopped after {len(simulation.metrics) - 1} rounds; {changed:,} labels corrected")

predicted = simulation.predict(data.test_images)
print(f"first ten test images: {predicted[:10]}, really {data.test_labels[:10]}")
print(f"test accuracy {np.mean(predicted == data.test_labels):.1%} with {type(simulation.model()).__name__}")
simulation.close()
