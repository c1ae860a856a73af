"""Groups of the changes of an array: those of one relation among which its version is the same.

A hash table has the group that the next change of each relation belongs to. Relations leave it only
by being too old, so that all groups end at the price of a counter.
"""

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc


cdef enum:
    # Ages of an entry that has no group.
    EMPTY = 0
    OVER = 1
    FIRST_AGE = 2

cdef struct Entry:
    uint32_t relation
    uint32_t age  # EMPTY, OVER, or the age in which the group began
    int32_t group

cdef struct Group:
    uint32_t relation
    int32_t narrowest
    int32_t widest
    int64_t first

cdef struct RelationGroups:
    Group* groups
    Py_ssize_t count
    Py_ssize_t capacity
    Entry* entries
    Py_ssize_t mask  # number of entries - 1
    Py_ssize_t used
    uint32_t age
    uint32_t last_relation
    int32_t last_group  # of last_relation; -1: none


cdef inline bint init_groups(RelationGroups* self) noexcept nogil:
    """Begin without groups; return whether there was memory."""
    self.groups = NULL
    self.entries = NULL
    self.count = self.capacity = self.used = 0
    self.mask = -1
    self.age = FIRST_AGE
    self.last_group = -1
    return grow_entries(self)


cdef inline void free_groups(RelationGroups* self) noexcept nogil:
    free(self.groups)
    free(self.entries)


cdef inline void end_groups(RelationGroups* self) noexcept nogil:
    """End all groups."""
    self.age += 1
    self.last_group = -1


cdef inline void end_group(RelationGroups* self, uint32_t relation) noexcept nogil:
    """End the group of a relation."""
    cdef Entry* entry = find_entry(self, relation)
    if entry.age != EMPTY:
        entry.age = OVER
    self.last_group = -1


cdef inline int32_t group_of(
    RelationGroups* self, uint32_t relation, int64_t index
) noexcept nogil:
    """Return the number of the group of a change in message `index`; -1: out of memory."""
    if self.last_group >= 0 and relation == self.last_relation:
        return self.last_group
    return find_group(self, relation, index)


cdef inline int32_t find_group(
    RelationGroups* self, uint32_t relation, int64_t index
) noexcept nogil:
    cdef Entry* entry = find_entry(self, relation)
    if entry.age == EMPTY:
        if 2 * (self.used + 1) > self.mask:
            if not grow_entries(self):
                return -1
            entry = find_entry(self, relation)
        self.used += 1
    if entry.age != self.age:
        if self.count == self.capacity and not grow_groups(self):
            return -1
        entry.relation = relation
        entry.age = self.age
        entry.group = <int32_t> self.count
        self.groups[self.count] = Group(relation, INT32_MAX, -1, index)
        self.count += 1
    self.last_relation = relation
    self.last_group = entry.group
    return entry.group


cdef inline Entry* find_entry(RelationGroups* self, uint32_t relation) noexcept nogil:
    """Return a relation's entry, or the empty one for it."""
    cdef uint64_t hashed = relation * <uint64_t> 0x9E3779B97F4A7C15
    cdef Py_ssize_t place = <Py_ssize_t> (hashed >> 32) & self.mask
    while self.entries[place].age != EMPTY and self.entries[place].relation != relation:
        place = (place + 1) & self.mask
    return &self.entries[place]


cdef inline bint grow_entries(RelationGroups* self) noexcept nogil:
    cdef Entry* old = self.entries
    cdef Py_ssize_t old_count = self.mask + 1
    cdef Py_ssize_t count = 2 * old_count if old_count else 64
    cdef Py_ssize_t place
    cdef Entry* entries = <Entry*> calloc(count, sizeof(Entry))
    if entries == NULL:
        return False
    self.entries = entries
    self.mask = count - 1
    for place in range(old_count):
        if old[place].age != EMPTY:
            find_entry(self, old[place].relation)[0] = old[place]
    free(old)
    return True


cdef inline bint grow_groups(RelationGroups* self) noexcept nogil:
    cdef Py_ssize_t capacity = 2 * self.capacity if self.capacity else 64
    cdef Group* groups = <Group*> realloc(self.groups, capacity * sizeof(Group))
    if groups == NULL:
        return False
    self.groups = groups
    self.capacity = capacity
    return True
