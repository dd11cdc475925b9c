package where_test

import (
	"fmt"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/event/where"
)

func Example() {
	c, err := where.Compile(`payload.epoch > 3 && source.startsWith("trainer-")`)
	if err != nil {
		fmt.Println(err) // with line and column
		return
	}
	for _, epoch := range []int{3, 4} {
		ev := event.New(event.TrainingProgress, map[string]any{"epoch": epoch})
		ev.Source = "trainer-3"
		fmt.Println(c.Match(&ev))
	}
	// Output:
	// false <nil>
	// true <nil>
}
