package emit_test

import (
	"context"
	"fmt"
	"os"

	"github.com/ringrift/ringlog"
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
