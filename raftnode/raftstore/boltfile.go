package raftstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"

	"golang.org/x/sys/unix"

	"github.com/ringrift/ringlog/raftnode/datadir"
)

// bbolt maps its file and trusts it: a file that is too short is a SIGBUS, and
// a page it cannot make sense of is a panic, while opening even one in a
// goroutine of bbolt's own that nobody can recover. So the file's structure is
// read and checked here before bbolt sees it. Integers are the machine's.
//
//	file:    meta 0 | meta 1 | page 2 | page 3 …            page i is at i * page size
//
//	page:    id 8 | flags 2 | count 2 | overflow 4 | content      overflow more pages belong to it
//	meta:    magic 4 | version 4 | page size 4 | flags 4 | root page 8 | sequence 8 |
//	         freelist 8 | high water 8 | txid 8 | FNV-64a 8
//	branch:  count * (pos 4 | key size 4 | page 8), keys                      pos counts from its element
//	leaf:    count * (flags 4 | pos 4 | key size 4 | value size 4), keys and values
//	bucket:  a leaf value with flag 1: root page 8 | sequence 8, then, if root is 0, a leaf page inline
const (
	pageHeader  = 16
	elementSize = 16
	bucketSize  = 16
	metaSize    = 64
	metaSummed  = metaSize - 8

	boltMagic   = 0xED0CDAED
	boltVersion = 2
	noFreelist  = ^uint64(0)

	flagBranch   = 0x01
	flagLeaf     = 0x02
	flagMeta     = 0x04
	flagFreelist = 0x10
	flagBucket   = 0x01
)

var native = binary.NativeEndian

// boltFile is a bolt file under inspection.
type boltFile struct {
	data     []byte // the file, mapped
	pageSize int64
	meta     boltMeta
	reached  []uint64 // one bit per page
	wanted   map[string]visitor
	found    map[string]bool // buckets
}

// visitor gets each key of a bucket that is not a bucket itself, in order, and the size of
// its value; key is valid during the call only.
type visitor func(key []byte, size int) error

type boltMeta struct{ pageSize, root, freelist, highWater, txid uint64 }

// checkBoltFile reports what would make bbolt fail on the file at path, and a bucket of
// wanted that is missing, as ErrDamaged. The buckets' keys go to their visitors, which may be nil.
func checkBoltFile(path string, wanted map[string]visitor) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("raftstore: check %s: %w", path, err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		return inUse(path, err)
	}
	data, err := mapFile(f)
	if err != nil {
		return fmt.Errorf("raftstore: check %s: %w", path, err)
	}
	defer unix.Munmap(data)
	b := &boltFile{data: data, wanted: wanted, found: map[string]bool{}}
	err = protect(b.check)
	switch {
	case errors.Is(err, errPanicked):
		return damaged(path, "it cannot be read to its end: "+err.Error())
	case err != nil:
		return damaged(path, err.Error())
	}
	return nil
}

// mapFile maps f, because the millions of pages of a long log take longer to read one by
// one. What the disk cannot read is a fault, which protect turns into an error.
func mapFile(f *os.File) ([]byte, error) {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return nil, err
	}
	return unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
}

func inUse(path string, err error) error {
	return fmt.Errorf("raftstore: open %s: %w: %w: stop the process that has it open", path, datadir.ErrInUse, err)
}

func (b *boltFile) check() error {
	if len(b.data) == 0 {
		return errors.New("it is empty")
	}
	if err := b.readMetas(); err != nil {
		return err
	}
	if need := int64(b.meta.highWater) * b.pageSize; int64(len(b.data)) < need {
		return fmt.Errorf("it is cut: %d bytes of %d", len(b.data), need)
	}
	b.reached = make([]uint64, b.meta.highWater/64+1)
	if err := b.checkFreelist(); err != nil {
		return err
	}
	if err := b.walk(b.meta.root, nil, nil, nil); err != nil {
		return err
	}
	for name := range b.wanted {
		if !b.found[name] {
			return fmt.Errorf("its bucket %q is missing", name)
		}
	}
	return nil
}

// readMetas takes the newer of the two metas. Both must be whole: a meta fits a
// disk sector, so a crash leaves the old or the new one, and falling back from
// a damaged one would undo the last write, which may be a vote.
func (b *boltFile) readMetas() error {
	m0, err := b.readMeta(0)
	if err != nil {
		return fmt.Errorf("meta page 0: %w", err)
	}
	m1, err := b.readMeta(int64(m0.pageSize))
	if err != nil {
		return fmt.Errorf("meta page 1: %w", err)
	}
	b.pageSize, b.meta = int64(m0.pageSize), m0
	if m1.txid > m0.txid {
		b.meta = m1
	}
	return nil
}

func (b *boltFile) readMeta(off int64) (m boltMeta, err error) {
	if off < 0 || off > int64(len(b.data))-pageHeader-metaSize {
		return m, errors.New("it is cut")
	}
	raw := b.data[off:]
	flags, raw := native.Uint16(raw[8:]), raw[pageHeader:]
	h := fnv.New64a()
	h.Write(raw[:metaSummed])
	switch {
	case flags != flagMeta || native.Uint32(raw) != boltMagic:
		return m, errors.New("it is not a meta page")
	case native.Uint32(raw[4:]) != boltVersion:
		return m, fmt.Errorf("its version is %d", native.Uint32(raw[4:]))
	case native.Uint64(raw[metaSummed:]) != h.Sum64():
		return m, errors.New("its checksum differs")
	}
	return boltMeta{
		pageSize:  uint64(native.Uint32(raw[8:])),
		root:      native.Uint64(raw[16:]),
		freelist:  native.Uint64(raw[32:]),
		highWater: native.Uint64(raw[40:]),
		txid:      native.Uint64(raw[48:]),
	}, nil
}

// checkFreelist checks a stored list of free pages: bbolt overwrites these.
func (b *boltFile) checkFreelist() error {
	if b.meta.freelist == noFreelist {
		return nil
	}
	p, err := b.page(b.meta.freelist)
	if err != nil {
		return err
	}

	// A list that is too long for the page's count has its length before it.
	first, count := int64(pageHeader), int64(p.count)
	if p.count == 0xFFFF {
		raw, err := p.slice(first, 8)
		if err != nil {
			return err
		}
		first, count = first+8, int64(native.Uint64(raw))
	}
	if p.flags != flagFreelist || count < 0 || count > int64(len(p.data))/8 {
		return fmt.Errorf("page %d is no list of free pages", p.id)
	}
	ids, err := p.slice(first, 8*count)
	if err != nil {
		return err
	}

	// A free page that is also reached by the tree would be overwritten.
	for ; len(ids) > 0; ids = ids[8:] {
		if err := b.reach(native.Uint64(ids), 0); err != nil {
			return err
		}
	}
	return nil
}

// walk checks the pages below id, whose keys are in [low, high), and the
// buckets in them.
func (b *boltFile) walk(id uint64, low, high []byte, visit visitor) error {
	p, err := b.page(id)
	if err != nil {
		return err
	}
	switch p.flags {
	case flagBranch:
		return b.walkBranch(p, low, high, visit)
	case flagLeaf:
		return b.walkLeaf(p, low, high, visit)
	}
	return fmt.Errorf("page %d is neither branch nor leaf", id)
}

func (b *boltFile) walkBranch(p boltPage, low, high []byte, visit visitor) error {
	if p.count == 0 {
		return fmt.Errorf("page %d is a branch without keys", p.id)
	}
	if err := p.checkElements(); err != nil {
		return err
	}
	child, key := uint64(0), low
	for i := range p.count {
		e := p.element(i)
		next, err := p.orderedKey(e, key, i == 0, high)
		if err != nil {
			return err
		}
		// Where this element's keys begin, those of the child before end.
		if i > 0 {
			if err := b.walk(child, key, next, visit); err != nil {
				return err
			}
		}
		child, key = e.child, next
	}
	return b.walk(child, key, high, visit)
}

func (b *boltFile) walkLeaf(p boltPage, low, high []byte, visit visitor) error {
	if err := p.checkElements(); err != nil {
		return err
	}
	key := low
	for i := range p.count {
		e := p.element(i)
		var err error
		key, err = p.orderedKey(e, key, i == 0, high)
		if err != nil {
			return err
		}
		switch {
		case !p.holds(e.value, e.valueSize):
			err = fmt.Errorf("page %d has a value that leaves it", p.id)
		case e.flags&flagBucket != 0:
			err = b.walkBucket(p, e, string(key))
		case visit != nil:
			err = visit(key, int(e.valueSize))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *boltFile) walkBucket(p boltPage, e boltElement, name string) error {
	if e.valueSize < bucketSize {
		return fmt.Errorf("page %d has a bucket that is cut", p.id)
	}
	raw, err := p.slice(e.value, e.valueSize)
	if err != nil {
		return err
	}
	b.found[name] = true
	if root := native.Uint64(raw); root != 0 {
		return b.walk(root, nil, nil, b.wanted[name])
	}

	// A small bucket is a page within this one.
	inline, err := openPage(p.id, raw[bucketSize:])
	if err != nil {
		return err
	}
	if inline.flags != flagLeaf {
		return fmt.Errorf("page %d has a bucket that is no leaf", p.id)
	}
	return b.walkLeaf(inline, nil, nil, b.wanted[name])
}

// page reads page id and notes that it and its overflow were reached.
func (b *boltFile) page(id uint64) (boltPage, error) {
	if id < 2 || id >= b.meta.highWater {
		return boltPage{}, fmt.Errorf("page %d is outside of the file", id)
	}
	off := int64(id) * b.pageSize
	p, err := openPage(id, b.data[off:off+b.pageSize])
	if err != nil {
		return p, err
	}
	if stored := native.Uint64(p.data); stored != id {
		return p, fmt.Errorf("page %d says it is page %d", id, stored)
	}
	if err := b.reach(id, uint64(p.overflow)); err != nil {
		return p, err
	}
	p.data = b.data[off : off+(int64(p.overflow)+1)*b.pageSize]
	return p, nil
}

func (b *boltFile) reach(id, overflow uint64) error {
	if id < 2 || id+overflow >= b.meta.highWater {
		return fmt.Errorf("page %d with %d more is outside of the file", id, overflow)
	}
	for i := id; i <= id+overflow; i++ {
		if b.reached[i/64]&(1<<(i%64)) != 0 {
			return fmt.Errorf("page %d is used twice", i)
		}
		b.reached[i/64] |= 1 << (i % 64)
	}
	return nil
}

// boltPage is a page with its overflow, or one within another.
type boltPage struct {
	id           uint64
	flags, count uint16
	overflow     uint32
	data         []byte
}

type boltElement struct {
	flags              uint32
	child              uint64 // of a branch
	key, value         int64  // from the page's start
	keySize, valueSize int64
}

func openPage(id uint64, data []byte) (boltPage, error) {
	if len(data) < pageHeader {
		return boltPage{}, fmt.Errorf("page %d has a bucket that is cut", id)
	}
	return boltPage{
		id:    id,
		flags: native.Uint16(data[8:]), count: native.Uint16(data[10:]), overflow: native.Uint32(data[12:]),
		data: data,
	}, nil
}

func (p boltPage) holds(off, n int64) bool {
	size := int64(len(p.data))
	return off >= 0 && n >= 0 && off <= size && n <= size-off
}

func (p boltPage) slice(off, n int64) ([]byte, error) {
	if !p.holds(off, n) {
		return nil, fmt.Errorf("page %d points out of itself", p.id)
	}
	return p.data[off : off+n], nil
}

// checkElements reports elements that leave the page; element may be called after it.
func (p boltPage) checkElements() error {
	_, err := p.slice(pageHeader, int64(p.count)*elementSize)
	return err
}

func (p boltPage) element(i uint16) boltElement {
	off := pageHeader + int64(i)*elementSize
	raw := p.data[off:]
	if p.flags == flagBranch {
		return boltElement{
			key:     off + int64(native.Uint32(raw)),
			keySize: int64(native.Uint32(raw[4:])),
			child:   native.Uint64(raw[8:]),
		}
	}
	e := boltElement{
		flags:     native.Uint32(raw),
		key:       off + int64(native.Uint32(raw[4:])),
		keySize:   int64(native.Uint32(raw[8:])),
		valueSize: int64(native.Uint32(raw[12:])),
	}
	e.value = e.key + e.keySize
	return e
}

// orderedKey reads e's key and requires after < key < high; inclusive lets key
// equal after. Nil is no bound.
func (p boltPage) orderedKey(e boltElement, after []byte, inclusive bool, high []byte) ([]byte, error) {
	key, err := p.slice(e.key, e.keySize)
	if err != nil {
		return nil, err
	}
	order := 1
	if after != nil {
		order = bytes.Compare(key, after)
	}
	if len(key) == 0 || order < 0 || (order == 0 && !inclusive) || (high != nil && bytes.Compare(key, high) >= 0) {
		return nil, fmt.Errorf("page %d has keys out of order", p.id)
	}
	return key, nil
}
