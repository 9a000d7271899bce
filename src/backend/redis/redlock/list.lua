-- Lists a claim among the nested ones. Key: the list. Arguments: id, its names, as a JSON array.
redis.call('HSET', KEYS[1], ARGV[1], string.format('{"at":%.0f,"names":%s}', now, ARGV[2]))
return 1
