package emit_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/ringrift/ringlog"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/event/emit"
)

func Example() {
	if err := trainAndRead(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// hex8_2p models/hex8_2p.pth 0.25
	// 50
}

func trainAndRead(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "ringlog")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	n, err := ringlog.Open(ctx, ringlog.Config{Dir: dir})
	if err != nil {
		return err
	}
	defer n.Close(ctx)

	res, err := emit.Publish(ctx, n.Client(), emit.TrainingCompleted{
		ConfigKey:       "hex8_2p",
		ModelPath:       "models/hex8_2p.pth",
		FinalLoss:       0.25,
		EpochsCompleted: 50,
	}, emit.WithSource("trainer-3"), emit.WithKey("hex8_2p"), emit.WithCorrelationID("run-7"))
	if err != nil {
		return err
	}

	ev, err := n.Client().Get(ctx, res.Offset)
	if err != nil {
		return err
	}
	p, err := emit.Decode[emit.TrainingCompleted](ev)
	if err != nil {
		return err
	}
	loss, err := emit.As[float64](p.FinalLoss)
	if err != nil {
		return err
	}
	fmt.Println(p.ConfigKey, p.ModelPath, loss)
	fmt.Println(p.EpochsCompleted)
	return nil
}

// Fields that the catalogue does not list go in Extra, and come back in it.
func ExampleEvent() {
	ev, err := emit.Event(emit.TrainingCompleted{
		ConfigKey: "hex8_2p",
		Extra:     emit.Extra{"gpu_hours": 3.5},
	}, emit.WithSource("trainer-3"), emit.WithDedupID("run-7/completed"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(ev.Type, ev.DedupID)
	fmt.Println(string(ev.Payload))
	// Output:
	// TRAINING_COMPLETED run-7/completed
	// {"config_key":"hex8_2p","gpu_hours":3.5}
}

// A function that publishes is enough, such as one that writes to the old bus as well.
func ExamplePublishFunc() {
	var to emit.PublishFunc[int] = func(ctx context.Context, ev event.Event) (int, error) {
		fmt.Println("publish", ev.Type)
		return 1, nil
	}
	n, err := emit.Publish(context.Background(), to, emit.ModelPromoted{})
	fmt.Println(n, err)
	// Output:
	// publish MODEL_PROMOTED
	// 1 <nil>
}

// A value of another type than the catalogue's costs that field alone.
func ExampleDecode() {
	ev := event.New(event.TrainingCompleted, map[string]any{"config_key": "hex8_2p", "model_path": 8})
	p, err := emit.Decode[emit.TrainingCompleted](ev)
	if mismatch, ok := errors.AsType[*emit.MismatchError](err); ok {
		fmt.Println("not as in the catalogue:", mismatch.Fields)
	}
	fmt.Println(p.ConfigKey, p.Extra["model_path"])
	// Output:
	// not as in the catalogue: [model_path]
	// hex8_2p 8
}
