package fsm

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/kv"
)

// The ranges that a group has settled after its commit are one value, because they change together. Each
// retry has a value of its own, because many may be pending and few change at a time. An empty list has
// no key.
func doneKey(group string) []byte { return key(prefixGroupDone, group) }

// retryKey is the group's name, a zero byte, which no name has, and the offset.
func retryKey(group string, offset uint64) []byte {
	return binary.BigEndian.AppendUint64(append(key(prefixGroupRetry, group), 0), offset)
}

// saveDone stores the ranges that are settled after the commit.
func (a *groupApplier) saveDone(group string, done ranges) {
	// An empty list has no key.
	if len(done) == 0 {
		a.tx.Delete(doneKey(group))
		return
	}
	a.tx.Set(doneKey(group), frame.AppendRanges(nil, done))
}

// saveRetries stores retries that are new or changed, and deletes those that are over.
func (a *groupApplier) saveRetries(group string, kept []frame.GroupRetry, over []uint64) {
	// One key each: a group with many of them changes few at a time.
	for _, offset := range over {
		a.tx.Delete(retryKey(group, offset))
	}
	for _, r := range kept {
		a.tx.Set(retryKey(group, r.Offset), frame.AppendRetries(nil, []frame.GroupRetry{r}))
	}
}

// loadGroups reads what groups know beside their cursors, which are loaded.
func (s *state) loadGroups(db kv.DB) error {
	err := scan(db, prefixGroupDone, func(name string, value []byte) error {
		// A value that is damaged keeps the state from being opened.
		g, err := s.groupOf(name)
		if err == nil {
			g.Done, err = frame.DecodeRanges(value)
		}
		if err == nil && !ranges(g.Done).ascending() {
			err = errors.New("ranges that do not ascend")
		}
		return err
	})
	if err != nil {
		return err
	}

	// Keys are in the order of offsets, and so is each list of retries.
	return scan(db, prefixGroupRetry, func(rest string, value []byte) error {
		// A key is the name, 0 and the offset.
		const around = 1 + 8
		if len(rest) < around {
			return errors.New("a cut key")
		}
		g, err := s.groupOf(rest[:len(rest)-around])
		if err != nil {
			return err
		}

		// The value repeats the offset, which has to be that of the key.
		list, err := frame.DecodeRetries(value)
		switch at := binary.BigEndian.Uint64([]byte(rest[len(rest)-8:])); {
		case err != nil:
			return err
		case len(list) != 1:
			return fmt.Errorf("%d retries", len(list))
		case list[0].Offset != at:
			return fmt.Errorf("a retry of %d at %d", list[0].Offset, at)
		}
		g.Retries = append(g.Retries, list[0])
		return nil
	})
}

// groupOf returns the group that a stored key belongs to. A key without one is damage.
func (s *state) groupOf(name string) (*Group, error) {
	if c := s.cursors[name]; c != nil && c.Group != nil {
		return c.Group, nil
	}
	return nil, fmt.Errorf("there is no group %q", name)
}
