package fsm

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/ringrift/ringlog/frame"
)

func TestAClusterStartsAtTheLevelOfItsOldestMember(t *testing.T) {
	m := open(t, vfs.NewMem())
	defer m.Close()
	applyTo(t, m, entryOf(1, 1, "n1", epoch, do(frame.Hello{ClusterID: "c", Members: []frame.Member{
		{ID: "n1", FeatureLevel: frame.LevelDelivery}, {ID: "n2", FeatureLevel: frame.LevelBase}, {ID: "n3", FeatureLevel: frame.LevelLetters}}})))
	if level := m.FeatureLevel(); level != frame.LevelBase {
		t.Errorf("level %d", level)
	}
}
