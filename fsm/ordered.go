package fsm

import (
	"iter"

	"github.com/RaduBerinde/btreemap"
)

// orderedMap is a B-tree, behind an interface: every package that sees a field of a generic type compiles the methods
// of that type, once for each of its types of keys and values. With the trees themselves in the state that is most of
// what the packages above this one compile.
type orderedMap[K, V any] interface {
	Get(key K) (K, V, bool)
	ReplaceOrInsert(key K, value V) (before K, was V, replaced bool)
	Delete(key K) (K, V, bool)
	Min() (K, V, bool)
	Len() int
	Ascend(from btreemap.LowerBound[K], to btreemap.UpperBound[K]) iter.Seq2[K, V]
	Descend(from btreemap.UpperBound[K], to btreemap.LowerBound[K]) iter.Seq2[K, V]
}

// cloneMap returns a copy that shares what neither changes.
func cloneMap[K, V any](m orderedMap[K, V]) orderedMap[K, V] {
	return m.(*btreemap.BTreeMap[K, V]).Clone()
}
